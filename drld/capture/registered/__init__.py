"""What the plane of packets registers: tables of the configuration, and options of `drlctl`."""
