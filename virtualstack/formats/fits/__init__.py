"""FITS: images and tables of all HDUs. astropy parses the cards of headers."""
