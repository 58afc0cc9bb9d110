"""Every implementation checked at odd sizes."""
