"""A selection of virtual arrays becomes values: plan, fetch, decode."""
