"""`python -m drld`."""

import sys

from drld.daemon import main

sys.exit(main())
