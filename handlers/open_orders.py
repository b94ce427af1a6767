"""Open orders by date: the first example of AWS's guide on sparse indexes, to the letter.

Items of the table `CustomerOrders` have the key `CustomerId`, `OrderId`. An order that is open carries `OrderOpenDate`,
the day on which it was placed, and the index of `CustomerId` and `OrderOpenDate` holds a customer's open orders and no
others, the oldest first. Once it is shipped, the attribute is removed.
"""

from framework import Index, SparseIndex, Table, attr

customer_orders = Table("CustomerOrders", pk="CustomerId", sk="OrderId")


class OpenOrders(SparseIndex):
    """The orders of a customer that are not shipped yet."""

    name = "open-orders"
    source = customer_orders
    index = Index("OpenOrdersIndex", pk="CustomerId", sk="OrderOpenDate")
    when = attr("Status").equals("open")
    sort = attr("OrderDate")
