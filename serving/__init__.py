"""What a server is: profiles, plans and releases. Pure Python; knows neither pyinfra nor a host."""
