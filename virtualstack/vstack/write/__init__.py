"""Groups become snapshots of a vstack."""
