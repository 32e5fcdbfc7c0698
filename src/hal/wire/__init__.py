"""The one internal wire: frames, their bytes, and connections that carry them."""
