"""Dependencies: names resolved and cycles refused at submission, and what follows from how they stand."""
