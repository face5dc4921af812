"""What a run shows over HTTP: metrics, the page, its status, its health, and the MBeans of a broker.

Nothing is written through it, and nobody is authenticated. Begin with `routes`.
"""
