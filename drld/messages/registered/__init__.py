"""What the plane of messages adds to drld's configuration, commands and control API."""
