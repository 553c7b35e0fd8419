"""Who asks: find the identities that an account has for a bucket or web server."""
