"""TIFF, GeoTIFF, COG and OME-TIFF; `reader` tells the way from a file to a group."""
