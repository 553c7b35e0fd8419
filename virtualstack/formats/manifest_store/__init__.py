"""The manifest store: its objects as bytes. No I/O; the rules stand in ``docs/reference/manifest-store.md``."""
