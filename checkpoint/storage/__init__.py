"""What a checkpoint is made of and where it lies: files with checksums, `_metadata`, owners, restore."""
