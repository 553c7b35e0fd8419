"""Write, read and maintain vstacks and their history."""
