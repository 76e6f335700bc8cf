//! Admission webhook: how does an AdmissionReview become a verdict or a placement hint, and back?
