"""Tests of the relay, by tier: unit, contract, integration, faults, acceptance."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""
