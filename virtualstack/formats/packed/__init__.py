"""Files of any format that are compressed as a whole."""
