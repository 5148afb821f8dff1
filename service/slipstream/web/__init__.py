"""The page that a browser shows at `/`: its files, and the rules under which a browser runs them."""
