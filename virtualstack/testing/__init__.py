"""What tests of readers, writers and stores share; for third-party plugins too."""
