"""The registrations of packets: tables of the configuration, options of `drlctl`, and more."""
