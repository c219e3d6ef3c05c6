"""Programs that write what is generated: reference, charts, dashboard, man pages, pictures, and the site."""
