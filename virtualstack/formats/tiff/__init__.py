"""TIFF, GeoTIFF, COG and OME-TIFF."""
