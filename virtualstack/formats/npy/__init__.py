"""NumPy: arrays in ``.npy`` files and ``.npz`` archives."""
