"""Tests of the relay, by tier: unit, contract, integration, faults, acceptance."""
