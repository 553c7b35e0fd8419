"""Groups of virtual arrays become references in a target."""
