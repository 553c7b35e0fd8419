"""What says where pixels are and what they mean, beside rioxarray."""

import numpy as np
import rasterio


def check_place_and_attributes(found, expected, /):
    """Check a loaded array of bands: coordinates bit for bit, CRS, transform or control points, and attributes."""
    is_placed = "x" in found.coords or "xc" in found.coords
    assert is_placed or expected.rio.transform() == rasterio.Affine.identity()
    for key in found.coords:
        if key != "spatial_ref":
            assert found[key].values.tobytes() == expected[key].values.tobytes(), key
    assert found.rio.crs == expected.rio.crs
    if is_placed:
        assert found.spatial_ref.attrs["GeoTransform"] == expected.spatial_ref.attrs["GeoTransform"]
    assert str(found.rio.get_gcps()) == str(expected.rio.get_gcps())
    attributes = dict(expected.attrs)
    for key, usual in (("scale_factor", 1.0), ("add_offset", 0.0)):  # of no effect, but on the dtype
        if attributes.get(key) == usual:
            del attributes[key]
    for key in ("grid_mapping", "gdal_decoding"):
        found.attrs.pop(key, None)
    assert found.attrs.keys() == attributes.keys()
    for key, value in attributes.items():
        value = ["" if x is None else x for x in value] if isinstance(value, tuple) else value
        np.testing.assert_array_equal(found.attrs[key], value)
