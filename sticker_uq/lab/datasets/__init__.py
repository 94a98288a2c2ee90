"""Making labelled data sets: prompts and generated pictures, abnormal scenes, frames, answers of an audit log; review,
checks, repair, what to label next.
"""
