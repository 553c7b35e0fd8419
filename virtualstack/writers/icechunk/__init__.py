"""Groups become references in an Icechunk repository."""
