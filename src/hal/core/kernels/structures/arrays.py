"""Types of the engine's arrays: what the number of dimensions and the dtype stand for, defined once.

Pure; imports no numba. A unit or an index that a type cannot carry stands where the array is declared (`declared`).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
"""Shape (n,): integers: slots, nodes, instants in ms, amounts in base units."""
Table: TypeAlias = NDArray[np.int64]
"""Shape (records, columns): records whose columns `layout` names, or a matrix over two indexes."""
Index: TypeAlias = NDArray[np.int64]
"""Shape (a power of two,): a hash index from ids to slots; slot + 1, 0 = empty (see `tables`)."""
Entry: TypeAlias = NDArray[np.int64]
"""Shape (columns,): one record of a Table."""
Rows: TypeAlias = NDArray[np.int64]
"""Shape (n,): indices of nodes, ascending unless something else is said."""
Mask: TypeAlias = NDArray[np.bool_]
"""Shape (nodes,): which nodes are meant."""
Allowed: TypeAlias = NDArray[np.int8]
"""Shape (constraint sets, nodes) or (nodes,): 1 where jobs of the set may run."""
Amounts: TypeAlias = NDArray[np.float64]
"""Any shape: decayed use, prices and shares; never a resource amount, which is an integer."""
Floats: TypeAlias = NDArray[np.float32]
"""Shape (resources, nodes): amounts as scores see them, resource-major."""
Narrow: TypeAlias = NDArray[np.int32]
"""Shape (nodes of a block,): scores in units of 1e-6."""
Records: TypeAlias = NDArray[np.void]
"""Shape (n,): a block of an event or of a plan; its dtype stands beside the event or plan."""
