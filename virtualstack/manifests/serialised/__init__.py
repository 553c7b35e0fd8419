"""Arrays and groups without their chunks as JSON and bytes."""
