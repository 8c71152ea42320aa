//! The published JSON schema knows the same keys as the parser.
