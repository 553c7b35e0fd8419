"""Read from web servers that only references name: each connection goes to an address that was checked."""
