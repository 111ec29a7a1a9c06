"""Who may do what: principals and their grants, tokens, sessions of browsers, and an OIDC issuer."""
