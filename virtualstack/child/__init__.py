"""Child processes that run C libraries which may crash or hang."""
