"""The Wyoming server: speech for Home Assistant, by the same turns and limits as over HTTP."""
