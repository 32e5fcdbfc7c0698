"""Log lines: what HAL's processes log and jobs print, in a bounded store that is searched by words."""
