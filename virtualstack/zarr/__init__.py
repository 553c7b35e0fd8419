"""Read and write zarr: metadata of version 2 and 3, stores as a source, and groups as a store for any zarr client."""
