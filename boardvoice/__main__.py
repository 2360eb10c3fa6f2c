"""`python -m boardvoice`."""

import sys

from boardvoice.main import main

sys.exit(main())
