"""TIFF, GeoTIFF, COG and OME-TIFF; see `reader` for the steps from a file to a group."""
