//! A reader of varints, texts and lists that answers broken data with an error.

/// What is wrong with the data.
#[derive(Debug)]
pub(in crate::catalog) struct CatalogReadError(pub(in crate::catalog) &'static str);

/// Reads from the beginning of some bytes to their end.
pub(in crate::catalog) struct CatalogReader<'a> {
    data: &'a [u8],
    at: usize,
    part: &'static str,
}

impl<'a> CatalogReader<'a> {
    pub(in crate::catalog) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, part: "the header" }
    }

    /// Names the part that follows, for errors.
    pub(in crate::catalog) fn enter(&mut self, part: &'static str) {
        self.part = part;
    }

    pub(in crate::catalog) fn part(&self) -> &'static str {
        self.part
    }

    pub(in crate::catalog) fn position(&self) -> usize {
        self.at
    }

    pub(in crate::catalog) fn take(&mut self, length: usize) -> Result<&'a [u8], CatalogReadError> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.data.get(self.at..end));
        let bytes = bytes.ok_or(CatalogReadError("the data ends too early"))?;
        self.at += length;
        Ok(bytes)
    }

    /// A LEB128 varint that fits the requested type.
    pub(in crate::catalog) fn number<N: TryFrom<u64>>(&mut self) -> Result<N, CatalogReadError> {
        let mut number = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = self.take(1)?.first().copied().unwrap_or(0);
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return N::try_from(number).map_err(|_| CatalogReadError("a number is out of range"));
            }
        }
        Err(CatalogReadError("a number is too long"))
    }

    pub(in crate::catalog) fn text(&mut self) -> Result<&'a str, CatalogReadError> {
        let length = self.number()?;
        str::from_utf8(self.take(length)?).map_err(|_| CatalogReadError("a string is not UTF-8"))
    }

    /// A count and as many entries. Every entry takes a byte at least, so a wrong count ends with the data.
    pub(in crate::catalog) fn list<T>(
        &mut self,
        mut entry: impl FnMut(&mut Self) -> Result<T, CatalogReadError>,
    ) -> Result<Vec<T>, CatalogReadError> {
        let count: usize = self.number()?;
        (0..count).map(|_| entry(self)).collect()
    }

    pub(in crate::catalog) fn finish(&self) -> Result<(), CatalogReadError> {
        if self.at == self.data.len() { Ok(()) } else { Err(CatalogReadError("more data follows")) }
    }
}
