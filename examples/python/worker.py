#!/usr/bin/env python3
"""A worker in Python under a fence, with psycopg2 and nothing of this library but its SQL functions.

    DATABASE_URL=postgres://… ./worker.py

The database needs fencepost's migrations (fencepost migrate up) and schema.sql. There is no Redis
here: who may work is decided by drawing, so each worker takes over from the one before.
"""
import os
import uuid

import psycopg2

RESOURCE = "examples:account:1"


class Stale(Exception):
    """Another worker has taken over."""


class Claim:
    """Permission to write, until another worker draws."""

    def __init__(self, connection, resource, label):
        self.connection, self.resource, self.nonce = connection, resource, str(uuid.uuid4())
        with connection, connection.cursor() as cursor:  # committed before anything is read or written under it
            cursor.execute("SELECT fencepost.draw(%s, %s, %s)", (resource, self.nonce, label))
            (self.token,) = cursor.fetchone()

    def transaction(self, work):
        """Runs work(cursor) in a transaction that commits only if nobody has taken over."""
        try:
            with self.connection, self.connection.cursor() as cursor:
                cursor.execute("SELECT fencepost.enter(%s, %s, %s)", (self.resource, self.token, self.nonce))
                return work(cursor)
        except psycopg2.Error as error:
            if error.pgcode == "ZF001":
                raise Stale(self.resource) from error
            raise


def deposit(amount):
    return lambda cursor: cursor.execute(
        "UPDATE shop.account SET balance = balance + %s WHERE id = 1", (amount,))


def connect():
    # Names are compared byte by byte, so fencepost takes them in UTF-8 alone.
    return psycopg2.connect(os.environ["DATABASE_URL"], client_encoding="UTF8")


def main():
    first = Claim(connect(), RESOURCE, "first")
    first.transaction(deposit(10))
    print("first: deposited 10")

    second = Claim(connect(), RESOURCE, "second")
    second.transaction(deposit(5))
    print("second: took over, deposited 5")

    try:
        first.transaction(deposit(10))
    except Stale:
        print("first: refused as stale")


if __name__ == "__main__":
    main()
