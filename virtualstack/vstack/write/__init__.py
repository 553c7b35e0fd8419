"""Write vstacks: place chunks, write segments, commit snapshots, and write the hint."""
