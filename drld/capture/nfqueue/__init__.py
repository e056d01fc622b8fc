"""The nfqueue datapath: a packet queue, its firewall rules, and stamps of arrival times."""
