"""Groups become snapshots of a manifest store."""
