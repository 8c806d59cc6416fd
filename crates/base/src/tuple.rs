//! Tuples, as keys and as values: their fields, one after another.

/// Implements a trait of keys or of values, and its error, for tuples. For the crates of Foreshore only.
#[doc(hidden)]
#[macro_export]
macro_rules! tuple_coding {
    ($coding:ident, $error:ident: $($field:ident $index:tt),+; $last:ident $last_index:tt) => {
        impl<$($field: $coding,)+ $last: $coding> $coding for ($($field,)+ $last,) {
            type Owned = ($($field::Owned,)+ $last::Owned,);

            fn type_name() -> std::borrow::Cow<'static, str> {
                let names = [$($field::type_name(),)+ $last::type_name()];
                format!("({})", names.join(", ")).into()
            }

            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_inner(out);)+
                self.$last_index.encode(out);
            }

            fn encode_inner(&self, out: &mut Vec<u8>) {
                $(self.$index.encode_inner(out);)+
                self.$last_index.encode_inner(out);
            }

            #[allow(non_snake_case, reason = "the fields of a tuple are named by their type parameters")]
            fn decode(bytes: &[u8]) -> Result<Self::Owned, $error> {
                $(let ($field, bytes) = $field::decode_inner(bytes)?;)+
                let $last = $last::decode(bytes)?;
                Ok(($($field,)+ $last,))
            }

            #[allow(non_snake_case, reason = "the fields of a tuple are named by their type parameters")]
            fn decode_inner(bytes: &[u8]) -> Result<(Self::Owned, &[u8]), $error> {
                $(let ($field, bytes) = $field::decode_inner(bytes)?;)+
                let ($last, bytes) = $last::decode_inner(bytes)?;
                Ok((($($field,)+ $last,), bytes))
            }
        }
    };
}
