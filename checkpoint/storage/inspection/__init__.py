"""What is in checkpoint folders, as plain values for programs that show it; nothing here changes anything."""
