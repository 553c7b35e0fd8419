"""What of h5py runs in a child process. Modules here import nothing else of virtualstack."""
