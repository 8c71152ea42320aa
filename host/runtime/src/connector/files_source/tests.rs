//! Files read in pieces, left at any record and read on.
