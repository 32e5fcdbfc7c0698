"""The frames of HAL's one internal wire, one module a conversation; import from the modules.

`conversation` has what all frames share. `hello` opens every connection of framed messages; `agent_keeper`,
`controller_agent` and `joining` are conversations, each with a union and a decoder of its own, so that a process loads
and accepts only the frames that are sent to it. spec/frames.md is the description for other languages; a test decodes
its examples.
"""
