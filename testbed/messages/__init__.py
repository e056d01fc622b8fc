"""Messages in virtual time: publishers, brokers, and the figures of SRTM's papers."""
