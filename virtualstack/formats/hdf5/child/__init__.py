"""Code that calls h5py in a child process; it imports only `virtualstack.child` from outside of this folder."""
