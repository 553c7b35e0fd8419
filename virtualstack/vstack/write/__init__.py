"""Write vstacks: place chunks, write segments, commit snapshots, and update the zarr view."""
